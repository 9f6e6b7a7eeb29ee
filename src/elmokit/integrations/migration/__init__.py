"""The interfaces of older ELMo programs, so that code written for them goes on running.

allennlp: `ElmoEmbedder`, `Elmo` and `batch_to_ids`. simple_elmo: `ElmoModel`. many_langs:
`Embedder`. tf_hub: `Module` and `load`. seqvec: the command line. The names and results are those
of the old programs, the remembered state included where they had one; ``docs/migration.md`` lists
what differs.
"""
