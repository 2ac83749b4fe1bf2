"""The sections of a run's report: what each of them says, from a run folder's content to words, tables and pictures."""
