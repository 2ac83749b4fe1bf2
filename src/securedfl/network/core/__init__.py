"""The federation's log: what all peers agree on, decided by a pure core.

Nothing here has a clock, a thread, a socket, a file or a random number. A shell feeds the core and does what it says::

    core = Core(stored, me=2, genesis=state, rules=rules, signer=signer, incarnation=name, now=now)
    for action in core.step(event, now): ...

- ``stored`` is what counts of the records that the shell has on disk (nothing at the first start); ``genesis`` is the
  state before the first entry, from the federation's files; ``incarnation`` the random name of the state folder.
- The shell carries actions out in order. `Write` is synced before the next action. If it fails, the shell throws the
  core away, and makes another one when the disk works again. It may keep only the last `Boot`, `Promise` and
  `Started`, and all `Decided`.
- After a start the shell tells its links, and the `Result` that it has stored last. The core says `Train` and `Apply`
  again; both are answered from what is stored, where it is.
- ``now`` is any clock that never goes back while the process lives.
- Signatures: `Signer`. Bytes from the wire go through `decode`, which gives None for what is malformed: count it.

One round, as a member sees it: `Train` -> `Update`; the log decides `Begin`; `Share` -> `Shared`; the log decides
`Commit`; `Open` -> `Result`; the log decides `Done`; `Apply`, and `Train` of the next round. A peer without the result
is told to `Fetch` it. `Stop` gives an attempt up; another `Open` repeats the second part without the lost.

| file | question |
|---|---|
| `entries` | what can be agreed on? |
| `state` | what does the log say, and what may come next? |
| `messages` | what travels and what is written down? |
| `events` | what is the core told, and what does it say must be done? |
| `consensus` | how is one entry decided (Tendermint, arXiv 1807.04938)? |
| `proofs` | who really said it, and was it a quorum? |
| `views` | what does this peer see of the others, and what do they lack? |
| `sense` | which entry makes sense now? |
| `conduct` | what has this peer done, and what does it do next? |
| `telling` | what are people told? |
| `core` | all of it together |
"""
