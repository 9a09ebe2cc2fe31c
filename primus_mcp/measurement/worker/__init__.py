"""The program that each rank of a measured run executes. The only place that imports torch at the top of its modules: nothing but a child
process started by `launch` imports it.
"""
