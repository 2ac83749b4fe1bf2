"""The budget of differential privacy: what totals tell about one record or one site, in epsilon and delta.

`skellam` is the mathematics of the noise, `accountant` adds up what rounds spend, and `plan` says before a run what it
will spend, and what would fit. All of it is pure functions of numbers; no data comes near it.
"""
