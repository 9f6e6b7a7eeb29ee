"""Work on Ray: the same code on one machine and on a cluster.

encode cuts files of texts into pieces and lets Ray Data give them out; worker is what runs where
Ray starts it; pieces says which files a folder of vectors is made of and whether they belong to it;
cluster finds a place for workers. The service on Ray Serve is in ``elmokit.ray.serve``,
pretraining with Ray Train in ``elmokit.ray.train``.
"""
