package file

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// kernelID identifies the kernel since its boot and the PID namespace: with the same ID, a PID means the same
// process. It is "" if unknown.
//
// The boot ID alone would not suffice: containers on one host share it but have PIDs of their own.
func kernelID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + pids
}

// startTime is when a process started, in clock ticks since the boot: field 22 of proc(5)'s /proc/PID/stat.
// It is "" for one that has ended and waits to be reaped.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the command's name in parentheses, which may contain spaces and parentheses.
	_, rest, found := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	fields := strings.Fields(string(rest)) // from the third, the state
	if !found || len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat is not as proc(5) says", pid)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return "", nil
	}
	return fields[19], nil
}
