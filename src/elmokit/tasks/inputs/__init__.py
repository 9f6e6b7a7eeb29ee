"""Sources of token vectors for a task's model, put side by side by `elmokit.tasks.embedder`.

source says what a part must offer: `Input` (vectors by place) and `LayerSource` (a model, frozen or
learning, that gives several layers a token). words has what depends on a word alone: vectors that
learn with the task, a character CNN, static vectors. layers mixes the layers of a `LayerSource`,
which may come from a store on disk. elmo makes a biLM such a source, encoders any encoder of
Hugging Face, several puts a number of them side by side; references finds them again for a saved
predictor. written reads the words that a task writes, with a biLM's forward direction alone.
"""
