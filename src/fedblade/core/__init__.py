"""What every other package builds on. Depends on torch, NumPy and safetensors only.

- A method as a value: `method`, `phase`, `terms`, `sums`, `metric`, `fields`, and what its code sees: `views`.
- A round: `streams` and `plan` (who trains on what), `problem` (what a client receives), `local` (the one local loop),
  `gradient`, `lengths`, `passes`, `outcome` and `end` (what a client sends and keeps), `client_diagnostics`.
- The network: `network`, `network_building`, `neck`, `frozen`; the data: `samples`, `cohort`.
- State: `state`, `tree`, `finite`; files: `files`, `tensorfile`; the rest: `registry`, `errors`, `listener`,
  `timeline`, `nested`, `words`, `untrusted_text`.
"""
