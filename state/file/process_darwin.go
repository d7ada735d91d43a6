package file

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// kernelID identifies the kernel since its boot; "" if unknown.
func kernelID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// zombie is SZOMB of <sys/proc.h>.
const zombie = 5

// startTime is when a process started, in microseconds since 1970; "" for one that has ended and waits to be
// reaped.
func startTime(pid int) (string, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	if p.Proc.P_stat == zombie {
		return "", nil
	}
	t := p.Proc.P_starttime
	return strconv.FormatInt(t.Sec*1e6+int64(t.Usec), 10), nil
}
