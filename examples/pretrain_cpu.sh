#!/usr/bin/env bash
# From a text file to a working ELMo model on a CPU.
#
#     bash examples/pretrain_cpu.sh TEXT [FOLDER]
#
# TEXT is plain text in UTF-8: one paragraph per line, a blank line between documents; .gz, .bz2, .xz
# and .zst work too. About five megabytes take some ten minutes on two cores. All outputs go to FOLDER
# (cpu-demo). If you interrupt the training, run the script again: it resumes.
set -euo pipefail
text=${1:?"usage: bash examples/pretrain_cpu.sh TEXT [FOLDER]"}
folder=${2:-cpu-demo}
mkdir -p "$folder"

# 1. Split into sentences and tokens, count words, and hold out three percent of the documents for
#    evaluation.
if [ ! -e "$folder/corpus" ]; then
    elmokit corpus prepare "$text" -o "$folder/corpus" --heldout 0.03
fi

# 2. Inspect the corpus: sentence lengths, and the OOV rate for several vocabulary sizes.
elmokit corpus stats "$folder/corpus" --vocab-size 5000 10000

# 3. Train. The log shows the training loss of both directions; lines with "held-out" show the
#    perplexity that counts. Extra options come from the environment, for instance
#    PRETRAIN="--max-steps 500" for a shorter run.
resume=
if [ -e "$folder/model/training/settings.toml" ]; then resume=--resume; fi
# shellcheck disable=SC2086 # none or several words, on purpose
elmokit pretrain "$folder/corpus" -o "$folder/model" --preset tiny $resume ${PRETRAIN:-}

# 4. The folder is a complete model.
elmokit info "$folder/model"

# 5. How well does it predict text of your own? (Here only a sentence, to show the command.)
echo "The river flows through the city." > "$folder/sentence.txt"
elmokit perplexity "$folder/sentence.txt" --model "$folder/model"

# 6. Vectors of each token, all layers, in a file.
elmokit encode "$folder/sentence.txt" -o "$folder/vectors.h5" --layers all --model "$folder/model"

# 7. Which words would fit instead of another?
elmokit substitutes "The river flows through the city." --word city -k 5 --model "$folder/model"
