"""Press: run the notebooks and print what they found as a book.

Owns the execution of notebooks, cards and tables, charts, pages and the Sphinx extension. Does not
own what a verdict is (``ledger``) or where a number comes from (``physics``, ``bench``).
"""
