"""Deployment with Flower: a run's server and nodes as Flower apps, and a local federation to try them.

Public modules: `app_folder`, `app`, `new_app`, `certificates`, `local_federation`, `federation_status` and `following`
are used by the commands of `fedblade flower`; `server_app` and `client_app` by the apps themselves.
"""
