"""How a synthetic presentation attack is made, from the victim's photograph to the camera that is deceived.

domains  five data centres: cameras, rooms, papers, screens      filming  who is filmed where, and how things move
sheet    where each pixel falls on the paper or the screen       print_   ink, paper, glare, fingers
cut      holes for eyes, and the eyes behind them                screen   backlight, pixel grid, moiré, reflections
lens     the camera in front of it all

As in ``portrait``, only operations with one IEEE answer touch pixels, so a CPU and a GPU agree up to rounding.
"""
