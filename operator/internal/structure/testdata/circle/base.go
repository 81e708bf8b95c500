package circle

const base = 1
