"""For tests: what every env must do, a fake env, and real sandboxes for other projects' suites.

`contract` is the suite that any implementation of `RunEnv` can be held to; `scripted` a fake env with recorded answers;
`containers` a testcontainers container that is a RunEnv; `fixtures` a pytest plugin with real envs. Each is imported by
name, since each needs something else: `contract` and `fixtures` pytest, `containers` testcontainers.
"""
