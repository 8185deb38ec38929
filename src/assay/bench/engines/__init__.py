"""Engines: start real inference servers, know when they are ready, read their counters, end them.

Owns one small file per engine, and the supervision that leaves no process behind. Does not own
load, protocol or gates.

::

    recipe.py      what to start: command, environment, where it answers, what it counts
    process.py     a command with all its children, ended together whatever happens
    server.py      start a recipe, wait until it is ready, read its counters, stop it
    counters.py    Prometheus text to the few totals that a gate needs
    vllm.py  transformers.py  llamacpp.py  sglang.py  trtllm.py  tgi.py  openai.py
"""
