"""Records of published data sets, each format by its own columns -> rows and checks.

A record is a dictionary: a row of a Parquet file or a line of a JSONL file. A reader makes a row of
it, or says why it cannot. It runs nothing that the record contains.
"""
