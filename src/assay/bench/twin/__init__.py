"""Twin: vLLM's own scheduler and block manager on a simulated clock.

Real: admission, chunked prefill, prefix caching, eviction, preemption, the offloading connector's
scheduler side. Modelled: how long a step takes (`steptime`) and how long a transfer takes
(`offload`). `workload` says what arrives, `engine` holds vLLM's inner names, `run` is the loop,
`validate` lays it beside a really running engine. What comes out is a prediction: evidence of
basis ``simulated``, which decides nothing.
"""
