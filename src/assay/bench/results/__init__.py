"""Results: other people's benchmark files, read into one table.

One file per format (`vllm`, `sglang`, `guidellm`, `aiperf`, `llamabench`, `trtllm`, `lmbench`,
`loose`), `stream` and `tables` for the text itself, `fields` for values of an expected type,
`table` for the normalised records, `rows` for per-request data, `checks` for what no honest run
can be, `problems` for the rule ids, and `reader` as the door. Does not compare two results; that
is `assay.bench.comparison`.
"""
