"""`classify`, the class of a text: all of it is in task."""
