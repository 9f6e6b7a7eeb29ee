"""The routes of the service.

common: reading a request, its limits, waiting for the result, writing the answer. inference:
what a model computes (``/v1/encode``, ``similar``, ``layers``, ``score``, ``substitutes``,
``inspect``). predict: answers of saved predictors.
"""
