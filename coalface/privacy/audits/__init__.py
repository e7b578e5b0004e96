"""Attacks that take what travels and nothing else; the truth is only looked at to score them.

On what real rounds send (`recording`), as the server sees it plain, summed, or summed with noise (`view`):

1  template_leak        a face template from the change of the last layer
2  embedding_recovery   class embeddings from what is revealed or broadcast over the rounds
3  codeword             FedUV's secret codewords
4  gradient_inversion   pictures from one client's update
5  template_inversion   pictures from a template
6  membership           was this person, was this photograph, in the round?

On simulated embeddings (`simulate`), where everything else is held still:

recovery   solve the mixtures that are broadcast for single class embeddings
linkage    find out, with a photograph, whether somebody takes part
canaries   show how much the noisy sums of differential privacy tell, beside the ε that the account states
"""
