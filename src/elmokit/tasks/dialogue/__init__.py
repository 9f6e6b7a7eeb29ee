"""`dialogue`, the intent and the slots of a request: all of it is in task."""
