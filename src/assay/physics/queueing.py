"""Queueing: what a server's mean figures imply about each other.

Owns Little's law and what follows from it for a server of requests that wait, are read and are
answered token by token. Does not own which figures are trusted, nor any verdict.

Notes
-----
Little (1961), A proof for the queuing formula L = λW, doi:10.1287/opre.9.3.383: the mean number
in a system is the rate of departures times the mean stay, whatever the order of service.
"""

from __future__ import annotations

from assay.errors import InputError

__all__ = ["change", "decoding_at_once", "prefill_needed", "share_waiting"]


def change(before: float, after: float) -> float:
    """Return the relative change from one value to another [1].

    Examples
    --------
    >>> round(change(783.09, 825.77), 4)
    0.0545
    """
    _positive("the value before", before)
    return after / before - 1


def decoding_at_once(output_rate: float, tpot: float) -> float:
    """Return the mean number of requests that are being answered at once.

    Parameters
    ----------
    output_rate : float
        Output tokens of the whole server [tok/s].
    tpot : float
        Mean time per output token after the first [s].

    Returns
    -------
    float
        Requests [1].

    Notes
    -----
    Little's law for tokens: each is under way for one TPOT. First tokens are counted in the rate
    and not in TPOT, so with ``n`` tokens a request it is high by one part in ``n``; and a mean over
    requests stands for one over tokens.

    Examples
    --------
    >>> round(decoding_at_once(783.09, 0.15528))
    122
    """
    _positive("the output rate", output_rate)
    _positive("TPOT", tpot)
    return output_rate * tpot


def prefill_needed(ttft: float, input_rate: float) -> float:
    """Return how long a prompt would have to be for its prefill alone to take a TTFT.

    Parameters
    ----------
    ttft : float
        Time to the first token [s].
    input_rate : float
        Speed at which the server reads prompts [tok/s].

    Returns
    -------
    float
        Tokens [tok].

    Examples
    --------
    >>> prefill_needed(80.0, 1000.0)
    80000.0
    """
    _positive("TTFT", ttft)
    _positive("the input rate", input_rate)
    return ttft * input_rate


def share_waiting(ttft: float, prefill: float) -> float:
    """Return the share of TTFT that is not prefill, 0 when prefill takes all of it [1].

    Examples
    --------
    >>> share_waiting(80.0, 2.0)
    0.975
    """
    _positive("TTFT", ttft)
    return max(0.0, 1 - prefill / ttft)


def _positive(what: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{what} must be above 0, not {value:g}", fix="check the numbers given")
