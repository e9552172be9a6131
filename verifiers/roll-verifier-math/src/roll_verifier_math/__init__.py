"""A verifier for mathematical answers: is the final answer of a response equal to the reference as mathematics?"""
