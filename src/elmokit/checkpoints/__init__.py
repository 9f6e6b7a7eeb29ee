"""Checkpoints: files ↔ model, one module per format.

sources detects what a file or folder is and reads it; rescue says what the others are, and the way
out, with half_models for weights without options; archives extracts zip and tar files safely.
The formats: native (elmokit's own, with quantized for its int8 and int4 storage),
transformers_folder (Hugging Face), bilm_hdf5 (bilm-tf and AllenNLP weights), tf_checkpoint
(TensorFlow checkpoints and TF-Hub modules, with tf_table for their index), allennlp_archive and
many_langs (with torch_file, which reads what torch.save wrote). flair_file reads flair's character
language models, which are no biLMs but inputs of tasks. bilm_names and torch_names
translate their tensors to the canonical layout. checkpoint holds the `Checkpoint` that all of them
read and write; fingerprint hashes a model; export writes one for other tools, with onnx_graph for
ONNX. catalogue knows the published models by name and where their files are; download has them in
a cache, and transfer gets one file from the web; known_models lists all models with names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.checkpoints.catalogue import (
        Architecture as Architecture,
        OtherAddress as OtherAddress,
        PublishedFile as PublishedFile,
        PublishedModel as PublishedModel,
        find_published as find_published,
        published_models as published_models,
        suggest_names as suggest_names,
    )
    from elmokit.checkpoints.checkpoint import Checkpoint as Checkpoint
    from elmokit.checkpoints.download import (
        CachedModel as CachedModel,
        cache_folder as cache_folder,
        cached_models as cached_models,
        download as download,
        remove_cached as remove_cached,
    )
    from elmokit.checkpoints.export import export_model as export_model
    from elmokit.checkpoints.fingerprint import fingerprint as fingerprint
    from elmokit.checkpoints.known_models import (
        KnownModel as KnownModel,
        embedded_models as embedded_models,
        models as models,
    )
    from elmokit.checkpoints.sources import (
        Extras as Extras,
        read_source as read_source,
    )
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "catalogue": "Architecture OtherAddress PublishedFile PublishedModel find_published "
            "published_models suggest_names",
            "checkpoint": "Checkpoint",
            "download": "CachedModel cache_folder cached_models download remove_cached",
            "known_models": "KnownModel embedded_models models",
            "sources": "Extras read_source",
            "export": "export_model",
            "fingerprint": "fingerprint",
        },
    )
