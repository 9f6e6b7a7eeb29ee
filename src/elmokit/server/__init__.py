"""The HTTP service of ``elmokit serve``, and its client.

The data's way: server opens the port; gate turns away who may not come in, watch logs and counts;
routes (one module a subject) read requests with schemas and formats, ask a model of the registry
through batching, which joins what many clients want into batches for one worker thread, and write
the answer. walk is what the model side of the page "how it works" computes. settings holds all
limits. client calls a service; it needs no torch and no web framework. page is the built web page,
served as it is. ray_serve lets Ray Serve start the same application several times.
"""
