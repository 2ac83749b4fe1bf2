"""The data plane: how an attempt at an average runs, and how its result is kept and handed on.

`averages` says what is computed and what came of it; `trial` runs one attempt, with `driver` over `mailbox`, `parcels`
and `routes`; `results` keeps what came out, and `handing` gives it to peers that missed it.
"""
