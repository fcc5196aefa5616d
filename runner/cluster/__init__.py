"""The same run on a Ray cluster: its nodes, and the sandboxes on them.

Ray is in the GPU extra: nothing here imports it but inside of functions, so that whoever has no cluster does
not need it.
"""
