#!/bin/sh
# `elmokit serve` with curl alone.
#
#   elmokit serve &
#   sh examples/service.sh [ADDRESS]
#
# ADDRESS is http://127.0.0.1:8000 when left out. A server with tokens: set ELMOKIT_TOKEN.
set -eu
address=${1:-http://127.0.0.1:8000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Headers come from a file: other users of the machine can read the command line.
(
    umask 077
    echo 'Content-Type: application/json' > "$folder/headers"
    if [ -n "${ELMOKIT_TOKEN:-}" ]; then
        echo "Authorization: Bearer $ELMOKIT_TOKEN" >> "$folder/headers"
    fi
)

# post ROUTE BODY [OPTION ...]; waits and tries again while the server is busy.
post() {
    route=$1 body=$2
    shift 2
    curl --silent --show-error --fail --retry 4 --header "@$folder/headers" \
        --data "$body" "$@" "$address$route"
}

echo "One vector per text, in the shape of OpenAI's route:"
post /v1/embeddings '{"input": ["We sat on the bank of the river .", "The bank lent money ."]}' | cut -c 1-200

echo "Vectors of all tokens as a file that numpy.load reads:"
post /v1/encode '{"sentences": ["We sat on the bank of the river ."]}' \
    --header 'Accept: application/x-npy' --output "$folder/vectors.npy"
wc -c < "$folder/vectors.npy"

echo "Words that fit:"
post /v1/substitutes '{"sentence": "Paris is the capital of France .", "word": "capital", "k": 3}' | cut -c 1-200
echo

echo "An n-best list of a speech recogniser, sorted again:"
post /v1/rerank '{"weight": 0.5, "utterances": [{"id": "a1", "hypotheses": [
    {"text": "It is hard to wreck a nice beach .", "score": -10.1},
    {"text": "It is hard to recognise speech .", "score": -10.4}]}]}'
echo
