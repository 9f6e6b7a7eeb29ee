"""Sources of token vectors for a task's model, concatenated by `elmokit.tasks.embedder`.

source: pretrained models that give several layers per token (`LayerSource`): a biLM, a table of
static vectors, several at once. encoders: any encoder of Hugging Face as such a source. references:
opens sources, and finds them again for a saved predictor. words: what depends on a word alone:
vectors and a character CNN that are trained with the task, static vectors. mixed: the layers of a
source, mixed, from a store on disk where they are there; what reads the text a task writes.
"""
