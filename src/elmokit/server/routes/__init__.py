"""The routes of the service.

common: reading a request, its limits, waiting for the result, writing the answer. inference:
what models compute (``/v1/encode``, ``similar``, ``layers``, ``score``, ``substitutes``,
``inspect``), and the answers of saved predictors (``/v1/predict``).
"""
