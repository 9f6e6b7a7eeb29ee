"""ELMo beside what a user would pick instead: quality against cost."""
