"""Stage 3: files ↔ model.

sources finds out what a file is; one module per format reads it (and writes it, where that makes
sense); bilm_names and torch_names translate foreign tensors to the canonical layout. A
`Checkpoint` is what goes in and out.
exports writes a model for other tools; onnx_export and onnx_graph make its ONNX file.
"""
