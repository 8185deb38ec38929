"""Results: other people's benchmark files, read into one table.

`reader` is the door. A file's bytes come from `stream`, through `packing` when it is compressed;
`documents` makes values of JSON and `tables` rows of CSV, Markdown and SQL; `formats` tells who
wrote them. One file per format (`vllm` with `vllm_rows`, `sglang`, `guidellm`, `aiperf`,
`llamabench`, `trtllm`, `lmbench`, `loose`), and `exports` for reports that are written as tables
too. `fields` gives values of an expected type, `metrics` is the list of what can be said, `table`
holds the normalised records, `rows` per-request data, `checks` and `latencies` say what no honest
run can be, and `problems` has the rule ids. Does not compare two results; that is
`assay.bench.comparison`.
"""
