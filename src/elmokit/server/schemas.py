"""Requests and answers as pydantic models; the OpenAPI document is made of them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

# Lists stop at their first error: a message names one, and a body may hold a million.
Tokens = Annotated[list[StrictStr], Field(fail_fast=True)]
Sentence = Annotated[
    StrictStr | Tokens,
    Field(description="A text, which the model's tokeniser splits, or its tokens."),
]
SentenceList = Annotated[list[Sentence], Field(fail_fast=True)]
Sentences = Annotated[SentenceList, Field(description="Sentences; answers are in their order.")]
ModelName = Annotated[
    StrictStr | None, Field(description="A name of /v1/models; the first when left out.")
]
Whole = Annotated[StrictInt, Field(ge=-10_000, le=10_000)]
Weight = Annotated[float, Field(ge=-1e4, le=1e4, allow_inf_nan=False)]
Layers = Annotated[
    Literal["mean", "sum", "top", "all", "mix"]
    | Annotated[StrictInt, Field(ge=-100, le=100)]
    | Annotated[  # `layer_weights` tells them apart
        list[StrictInt | Weight], Field(fail_fast=True, max_length=100)
    ],
    Field(description="mean, sum, top, all, mix, a layer's number, or one weight per layer."),
]
Pool = Annotated[
    Literal["mean", "max"] | None, Field(description="One vector per sentence, over its tokens.")
]
Position = Annotated[
    StrictInt | None, Field(ge=0, description="Which token, from 0; or give the word.")
]
Word = Annotated[
    StrictStr | None,
    Field(description="The token itself, exactly as written; the first of several."),
]
Count = Annotated[StrictInt, Field(ge=1, le=1000, description="How many to return.")]


class StrictRequest(BaseModel):
    """A request without unknown fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)


class ModelRequest(StrictRequest):
    """A request for one of the models."""

    model: ModelName = None


class WordRequest(ModelRequest):
    """A request about a word in a sentence."""

    sentence: Sentence
    word: Word = None
    position: Position = None


class EncodeRequest(ModelRequest):
    """Sentences to be encoded."""

    sentences: Sentences
    layers: Layers = "mean"
    pool: Pool = None


class EmbeddingsRequest(ModelRequest):
    """Texts to be encoded into one vector each, as OpenAI's clients send them."""

    input: Annotated[
        StrictStr | Annotated[list[StrictStr], Field(fail_fast=True, min_length=1)],
        Field(description="A text, or a list of texts."),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Field(description="Numbers, or base64 of float32, little endian; numbers when left out."),
    ] = None
    dimensions: Annotated[
        StrictInt | None, Field(description="The model's width; no other is possible.")
    ] = None
    user: Annotated[StrictStr | None, Field(description="Ignored.")] = None


class SimilarRequest(WordRequest):
    """A use of a word, and what it is compared with: one other use, or all uses in sentences."""

    other: Annotated[Sentence | None, Field(description="Compare with this sentence.")] = None
    other_word: Annotated[
        Word, Field(description="The token of `other`; with `among`: search for this one instead.")
    ] = None
    other_position: Position = None
    among: Annotated[
        SentenceList | None, Field(description="Or find the nearest uses in these sentences.")
    ] = None
    layers: Layers = "mean"
    k: Count = 10


class LayersRequest(ModelRequest):
    """A sentence whose tokens are compared with each other, or with those of another."""

    sentence: Sentence
    other: Annotated[Sentence | None, Field(description="The other; itself when left out.")] = None


class ScoreRequest(ModelRequest):
    """Sentences to be scored by the language model."""

    sentences: Sentences


class SurprisalRequest(ModelRequest):
    """Sentences whose words are measured."""

    sentences: Sentences
    state: Annotated[
        Literal["fresh", "carry"],
        Field(description="Each sentence alone, or all of them as one document."),
    ] = "fresh"


class Hypothesis(StrictRequest):
    """What a recogniser may have heard."""

    text: Sentence
    score: Annotated[
        float,
        Field(
            strict=True,
            ge=-1e12,
            le=1e12,
            allow_inf_nan=False,
            description="The recogniser's natural logarithm: the higher, the better.",
        ),
    ]


class Utterance(StrictRequest):
    """An n-best list."""

    id: Annotated[StrictStr | StrictInt | None, Field(description="Comes back as it is.")] = None
    hypotheses: Annotated[list[Hypothesis], Field(fail_fast=True)]


class RerankRequest(ModelRequest):
    """N-best lists to be sorted again."""

    utterances: Annotated[list[Utterance], Field(fail_fast=True)]
    weight: Annotated[
        float, Field(strict=True, ge=0, le=1, description="The language model's share.")
    ] = 0.5


class SubstitutesRequest(WordRequest):
    """A position in a sentence, and how many words to predict for it."""

    k: Count = 10


class InspectRequest(WordRequest):
    """A word in a sentence whose intermediate results are shown."""

    k: Annotated[
        StrictInt, Field(ge=1, le=100, description="How many filters and predictions to return.")
    ] = 10


class PredictRequest(StrictRequest):
    """Texts for a saved predictor."""

    predictor: Annotated[StrictStr, Field(description="A name of /v1/models.")]
    items: Annotated[
        list[StrictStr | list[Any]],
        Field(fail_fast=True, description="Texts, lists of tokens, or what else the task takes."),
    ]
    details: Annotated[
        StrictBool, Field(description="Add probabilities, and tokens and spans with offsets.")
    ] = False


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


class OpenAIError(BaseModel):
    """Why a request was refused, in OpenAI's words."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIProblem(BaseModel):
    """An error as OpenAI's clients read it."""

    error: OpenAIError


class EncodedSentence(BaseModel):
    """Tokens and their vectors."""

    tokens: list[str]
    vectors: Annotated[
        list[Any],
        Field(description="(T, D); (L + 1, T, D) with all layers; without T when pooled."),
    ]


class EncodeAnswer(BaseModel):
    """Vectors of sentences."""

    model: str
    dim: int
    sentences: list[EncodedSentence]


class Embedding(BaseModel):
    """The vector of one text, of length 1."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens of the texts, as the model's tokeniser counts them."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """Vectors of texts, in their order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class NearestUse(BaseModel):
    """One use of a word."""

    cosine: float
    sentence: Annotated[int, Field(description="Number of the sentence, from 0.")]
    position: int
    tokens: list[str]


class TokenPosition(BaseModel):
    """A sentence, and a token in it if one was given."""

    tokens: list[str]
    position: int | None


class Cosines(BaseModel):
    """Similarity of two uses, lowest layer first."""

    layers: list[float]
    mean: float


class SimilarAnswer(BaseModel):
    """Cosines with one other use, or the nearest of many."""

    model: str
    query: TokenPosition
    other: TokenPosition | None
    cosine: Cosines | None
    uses: list[NearestUse] | None


class LayersAnswer(BaseModel):
    """Cosines of all pairs of tokens: one matrix per layer, lowest first."""

    model: str
    tokens: list[str]
    other_tokens: list[str]
    layers: list[list[list[float]]]


class SentenceScore(BaseModel):
    """Natural logarithms of a sentence's probabilities.

    `forward` ends with the sentence's end marker, `backward` begins with its begin marker.
    """

    tokens: list[str]
    logprob: float
    perplexity: float | None
    forward_logprob: float
    forward_perplexity: float | None
    backward_logprob: float | None
    backward_perplexity: float | None
    forward: list[float]
    backward: list[float] | None
    unknown: Annotated[list[bool], Field(description="Words the vocabulary does not hold.")]


class ScoreAnswer(BaseModel):
    """Scores in the order of the sentences."""

    model: str
    sentences: list[SentenceScore]


class SurprisalRow(BaseModel):
    """One word: surprisal and entropy in bits, and what else predicts reading times."""

    sentence: Annotated[int, Field(description="Counted from 1.")]
    position: Annotated[int, Field(description="Counted from 1.")]
    word: str
    forward: float
    backward: float | None
    two_sided: float | None
    entropy: float
    rank: int | None
    frequency: Annotated[float | None, Field(description="Per million words.")]
    length: int
    oov: Annotated[bool, Field(description="The numbers are estimates from the spelling.")]
    spelling: float
    forward_prev1: float | None
    forward_prev2: float | None


class SurprisalAnswer(BaseModel):
    """One row per word."""

    model: str
    rows: list[SurprisalRow]


class RankedHypothesis(BaseModel):
    """A hypothesis, its number in the request, and its scores."""

    index: int
    text: str | list[str]
    score: float
    lm_score: Annotated[
        float, Field(description="Mean of both directions' log-probabilities of the sentence.")
    ]
    combined: Annotated[float, Field(description="(1 - weight) * score + weight * lm_score.")]


class RankedUtterance(BaseModel):
    """An n-best list, the best hypothesis first."""

    id: str | int | None
    hypotheses: list[RankedHypothesis]


class RerankAnswer(BaseModel):
    """N-best lists in the order of the request."""

    model: str
    weight: float
    utterances: list[RankedUtterance]


class Guess(BaseModel):
    """A word for a position, with natural logarithms of its probabilities."""

    word: str
    logprob: float
    forward: float
    backward: float | None


class SubstitutesAnswer(BaseModel):
    """Words that fit: by both directions together, and by each direction."""

    model: str
    tokens: list[str]
    position: int
    both: list[Guess]
    forward: list[Guess]
    backward: list[Guess] | None


class Prediction(BaseModel):
    """The tokens of an item's texts, and its answer."""

    texts: list[list[str]]
    answer: Annotated[Any, Field(description="A class, a list of tags, ...; depends on the task.")]
    details: Annotated[
        dict[str, Any] | None,
        Field(description="Where asked for: score, text, tokens, spans, probabilities."),
    ] = None


class PredictAnswer(BaseModel):
    """A predictor's answers, in the order of the items, and its learned layer weights."""

    predictor: str
    task: str
    layers: dict[str, Any]
    items: list[Prediction]


class OpenAIModel(BaseModel):
    """A model as OpenAI's clients list it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsAnswer(BaseModel):
    """What the service offers, and its limits."""

    version: str
    models: list[dict[str, Any]]
    predictors: list[dict[str, Any]]
    limits: dict[str, float]
    object: Literal["list"]
    data: list[OpenAIModel]


class Health(BaseModel):
    """Whether the service is alive, or accepts requests."""

    status: Literal["ok"]


class Character(BaseModel):
    """What the character CNN reads: a character, byte or marker, and its id."""

    character: str
    id: int


class FilterWidth(BaseModel):
    """All filters of one width; `firing` are those with a positive response."""

    width: int
    filters: int
    firing: int


class FilterResponse(BaseModel):
    """A filter, its largest response (after the activation), and the characters behind it."""

    number: int
    width: int
    value: float
    start: int
    characters: list[str]


class Numbers(BaseModel):
    """A vector's norm and its first numbers."""

    norm: float
    first: list[float]


class HighwayGates(BaseModel):
    """Values of a highway's transform gates: their mean, and a histogram of ten bins."""

    mean: float
    bins: list[int]
    output: Numbers


class States(Numbers):
    """One direction's hidden state at the word, and the norms of all tokens' hidden states."""

    norms: list[float]


class LayerStates(BaseModel):
    """One LSTM layer."""

    number: int
    directions: dict[str, States]


class WordProbability(BaseModel):
    """A word and its probability."""

    word: str
    probability: float


class PositionGuesses(BaseModel):
    """What each direction predicts at a position, without having read the word there."""

    token: str
    forward: list[WordProbability]
    backward: list[WordProbability] | None


class InspectAnswer(BaseModel):
    """All intermediate results of the forward pass for one word."""

    model: str
    tokens: list[str]
    position: int
    characters: list[Character]
    widths: list[FilterWidth]
    filters: list[FilterResponse]
    highways: list[HighwayGates]
    token_vector: Numbers
    layers: list[LayerStates]
    guesses: list[PositionGuesses] | None
