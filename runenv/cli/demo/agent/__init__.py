"""The third act of the demo: an agent run, with a model that is played by a script or a vendor's real one.

`loop.py` is the agent: a model, tools and the turns between them. `wires.py` are whole conversations in two vendors'
JSON, `api.py` the way to their servers, `scripted.py` the model that needs none: it takes the requests and gives the
answers that a server would. `errand.py` is what is asked of the model, and the script; `programs.py` is the code that
the script writes. `transcript.py` keeps and counts what happened, `dialogue.py` draws it.
"""
