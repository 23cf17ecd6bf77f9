"""Models from where their weights are to where they are wanted.

Reading order: `config_json`, `published` (any form as ours), `megatron_parts`, `targets` (ours as any form),
`llava_export`, `combine`, `compare`, `loading` (into a model, whole or cut over ranks).
"""
