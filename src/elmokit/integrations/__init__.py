"""elmokit inside other programs.

onnx_elmo runs exported models without torch; migration has the interfaces of older ELMo programs;
ray encodes large corpora on many cores or machines.
"""
