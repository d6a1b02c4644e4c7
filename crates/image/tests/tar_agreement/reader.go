// Prints what Go's archive/tar reads of archives, a line a member.
package main

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
)

const large = 16 << 20

var kinds = map[byte]string{
	tar.TypeDir: "d", tar.TypeSymlink: "l", tar.TypeLink: "h",
	tar.TypeChar: "c", tar.TypeBlock: "b", tar.TypeFifo: "p",
}

func hexed(text string) string {
	if text == "" {
		return "-"
	}
	return hex.EncodeToString([]byte(text))
}

func read(path string, out io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			// Go returns them and leaves what they mean to its caller.
			fmt.Fprintln(out, "skipped global header")
			continue
		}
		kind, known := kinds[header.Typeflag]
		size, digest := int64(0), "-"
		if !known {
			kind, size = "f", header.Size
			if size <= large {
				sum := sha256.New()
				if _, err := io.Copy(sum, reader); err != nil {
					return err
				}
				digest = hex.EncodeToString(sum.Sum(nil))
			}
		}
		fmt.Fprintln(out, "member", kind, header.Mode&0o7777, header.Uid, header.Gid,
			header.ModTime.Unix(), size, digest, header.Devmajor, header.Devminor,
			hexed(header.Name), hexed(header.Linkname))
	}
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	count, _ := strconv.Atoi(os.Args[2])
	for number := 0; number < count; number++ {
		fmt.Fprintln(out, "archive", number)
		if err := read(fmt.Sprintf("%s/%d.tar", os.Args[1], number), out); err != nil {
			fmt.Fprintln(out, "refused", err)
		}
	}
}
