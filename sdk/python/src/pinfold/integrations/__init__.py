"""Back ends for agent frameworks: each module has the interface of one framework, which must be installed with it.

`pip install 'pinfold[pydantic-ai]'` (or `deepagents`, `openai-agents`) installs the version that is tested.
"""
