"""Assay: published LLM-inference claims, re-derived and judged with evidence anyone can rerun.

The rooms, each importing only those below it::

    cli                 the command line
    press   fleet       run notebooks and print the book; dispatch runs to other machines
    bench               engines, load, the machine
    ledger              records, store, judge, rules
    physics             units, KV bytes, roofline; pure
    errors              the errors raised on purpose
"""

__version__ = "0.1.0"
