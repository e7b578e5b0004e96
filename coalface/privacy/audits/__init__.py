"""Attacks that take what travels and nothing else; the truth is only looked at to score them.

recovery   solve the mixtures that are broadcast for single class embeddings
linkage    find out, with a photograph, whether somebody takes part
canaries   show how much the noisy sums of differential privacy tell, beside the ε that the account states
"""
