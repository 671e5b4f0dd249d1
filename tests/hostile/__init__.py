"""Hostile input: broken texts, programs, archives and assets, each of which must give a result or a clear error.

    python -m tests.hostile --minutes 60 --seed 0 --output out/hostile

Each target is a file with `prepare`, which makes valid inputs, and `draw`, which breaks one: `texts.py`, `programs.py`,
`archives.py`, `assets.py`, `catalogs.py`. `mutation.py` has the ways to break texts and bytes, `judge.py` says how a
case ends, `worker.py` runs cases in a process with limits, `campaign.py` watches it, and `payloads.py` has code that a
file must not run. `README.md` has the figures of the campaigns.
"""
