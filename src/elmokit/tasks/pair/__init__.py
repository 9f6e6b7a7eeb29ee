"""`pair`, how two texts relate: all of it is in task."""
