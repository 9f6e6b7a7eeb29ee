"""Sources of token vectors for a task's model.

source: pretrained models that give several layers per token (`LayerSource`): a biLM, a table of
static vectors, several at once. encoders: any encoder of Hugging Face, or in ONNX, as such a
source. flair_layers: flair's character language models as one. references: opens sources, and
finds them again for a saved predictor. mixed: the layers of a source, mixed, from a store on disk
if they are there; what reads the text that a task writes. token_inputs: all inputs concatenated:
mixed layers, static vectors, and what is trained with the task.
"""
