package golsm_test

import (
	"fmt"
	"os"
	"time"

	"headwater/golsm"
	"headwater/golsm/dto"
)

func Example() {
	dir, err := os.MkdirTemp("", "golsm")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	reader, writer := golsm.InitStorage(dir+"/commitlog", 100, 5*time.Second, time.Minute, 2*time.Minute, dir+"/sst", 1000)
	defer writer.Close()

	writer.Store(map[string][]dto.Measurement{
		"temp": {{Timestamp: 1000, Value: []byte("20.5")}, {Timestamp: 2000, Value: []byte("20.7")}},
	}, 0)
	for _, point := range reader.Retrieve([]string{"temp"}, 0, 2000)["temp"] {
		fmt.Println(point.Timestamp, string(point.Value))
	}
	fmt.Println(reader.GetTags())
	// Output:
	// 1000 20.5
	// 2000 20.7
	// [temp]
}
