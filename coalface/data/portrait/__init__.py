"""How a synthetic photograph is made, from the person to the camera, one step a file.

people   who sits: traits that stay          sitting  how they sit today: pose, light, lens
surface  the head as a surface under rays    paint    skin, eyes, lips, marks      wear     hair, glasses
stage    light, background, body             camera   blur, tone, noise, compression

Past the few numbers of a sitting only operations with one IEEE answer are used on pixels (no exp, sin, pow), and
pieces are blended rather than branched over: an image is the same whatever batch it is drawn in, and a CPU and a GPU
agree up to the rounding of sums.
"""
