"""How fast a model runs, and how fast the machine could.

flops counts the work, ceiling measures the machine's matmuls, worker is what runs inside
every measured process (elmokit's and those of other programs), processes starts and asks them,
side_by_side makes a whole comparison, report and plot show it, machine says where it was made.

Nothing else imports this folder but the command line: measuring uses what a user would use.
"""
