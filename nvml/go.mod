module github.com/eltrain/eltrain/nvml

go 1.26.7

require (
	github.com/NVIDIA/go-nvml v0.13.4-1
	github.com/eltrain/eltrain v0.0.0-00010101000000-000000000000
)

require github.com/google/uuid v1.6.0 // indirect

replace github.com/eltrain/eltrain => ../
