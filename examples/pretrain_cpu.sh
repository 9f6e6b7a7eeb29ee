#!/usr/bin/env bash
# From a text file to a working ELMo model on a CPU.
#
#     bash examples/pretrain_cpu.sh TEXT [FOLDER]
#
# TEXT is plain text in UTF-8: a paragraph a line, a blank line between documents; .gz, .bz2, .xz and
# .zst are read as they are. About five megabytes take two cores some ten minutes. Everything goes
# to FOLDER (cpu-demo). If you stop the training, run the script again: it goes on where it was.
set -euo pipefail
text=${1:?"usage: bash examples/pretrain_cpu.sh TEXT [FOLDER]"}
folder=${2:-cpu-demo}
mkdir -p "$folder"

# 1. Find sentences and tokens, count words, and keep three documents of a hundred apart. Nobody
#    trains on these, so they can tell what the model has learned.
if [ ! -e "$folder/corpus" ]; then
    elmokit corpus prepare "$text" -o "$folder/corpus" --heldout 0.03
fi

# 2. Look at the text: how long its sentences are, and how many words a vocabulary leaves out.
elmokit corpus stats "$folder/corpus" --vocab-size 5000 10000

# 3. Train. The table shows the training loss of both directions; lines with "held-out" show the
#    perplexity that counts. Extra settings come from the environment, for instance
#    PRETRAIN="--max-steps 500" for a shorter run.
resume=
if [ -e "$folder/model/training/settings.toml" ]; then resume=--resume; fi
# shellcheck disable=SC2086 # none or several words, on purpose
elmokit pretrain "$folder/corpus" -o "$folder/model" --preset tiny $resume ${PRETRAIN:-}

# 4. The folder is a model like any other.
elmokit info "$folder/model"

# 5. How well does it predict text of your own? (Here only a sentence, to show the command.)
echo "The river flows through the city." > "$folder/sentence.txt"
elmokit perplexity "$folder/model" "$folder/sentence.txt"

# 6. Vectors for each word, all layers, in a file.
elmokit encode "$folder/sentence.txt" -o "$folder/vectors.h5" --layers all --model "$folder/model"

# 7. Which words would fit in the place of another?
elmokit substitutes "$folder/model" "The river flows through the city." --word city -k 5
