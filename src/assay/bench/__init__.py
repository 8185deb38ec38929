"""Bench: engines, load and the machine; everything that runs or asks something real.

Owns discovery of the machine, the engines and their own accounting. Does not own verdicts, pages or
closed forms. Heavy imports happen inside the functions that need them.
"""
