"""The routes, a module for each subject; common is what they share."""
